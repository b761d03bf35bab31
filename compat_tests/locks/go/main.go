// franz-go or sarama at a listener that asks for TLS and log-ins: the words of compat_tests/locks/__init__.py.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Attempt is what is tried: where, whom the client trusts, who it is, and the value to write and to read back.
// Ca "": no TLS. Token: user and password are a delegation token (franz-go only).
type Attempt struct {
	Servers   string `json:"servers"`
	Ca        string `json:"ca"`
	Own       string `json:"own"`
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Topic     string `json:"topic"`
	Value     string `json:"value"`
	Token     bool   `json:"token"`
}

const patience = 8 * time.Second

func (a *Attempt) tls() (*tls.Config, error) {
	data, err := os.ReadFile(a.Ca)
	if err != nil {
		return nil, err
	}
	found := &tls.Config{RootCAs: x509.NewCertPool()}
	found.RootCAs.AppendCertsFromPEM(data)
	if a.Own != "" {
		pair, err := tls.LoadX509KeyPair(a.Own, a.Own)
		if err != nil {
			return nil, err
		}
		// What is asked for with a certificate of another authority is answered, too, as by OpenSSL's and Java's.
		found.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return found, nil
}

// kind names an error by what a program can ask of it.
func kind(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var network *net.OpError
	switch {
	case errors.As(err, &unknown):
		return "x509.UnknownAuthorityError"
	case errors.As(err, &host):
		return "x509.HostnameError"
	case errors.As(err, &invalid):
		return "x509.CertificateInvalidError"
	case errors.As(err, &record):
		return "tls.RecordHeaderError"
	case errors.As(err, &alert):
		return "tls.AlertError"
	}
	if found := kerrKind(err); found != "" {
		return found
	}
	switch {
	case errors.As(err, &network) && network.Op == "remote error":
		return "tls.AlertError"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return "disconnected"
	case errors.Is(err, context.DeadlineExceeded):
		return "time out"
	}
	return fmt.Sprintf("%T", err)
}

func main() {
	try := map[string]func(*Attempt) error{"franz-go": franz, "sarama": sarama_}[os.Args[1]]
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var attempt Attempt
		if err := json.Unmarshal(line, &attempt); err != nil {
			panic(err)
		}
		said := map[string]string{"kind": "in", "text": ""}
		if err := try(&attempt); err != nil {
			said = map[string]string{"kind": kind(err), "text": err.Error()}
		}
		if err := out.Encode(map[string]any{"ok": said}); err != nil {
			return
		}
	}
}
