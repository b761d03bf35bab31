//! rust-rdkafka under the line protocol of compat_tests/clients.py: the words of transactions.

use std::env;
use std::error::Error;
use std::io::{stdin, stdout, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::prelude::{Engine, BASE64_STANDARD};
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::{json, Value};

type Answer = Result<Value, Box<dyn Error>>;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Collects the errors of records that were not delivered.
#[derive(Default)]
struct Deliveries(Mutex<Vec<String>>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = result {
            self.0.lock().unwrap().push(error.to_string());
        }
    }
}

struct Driver {
    bootstrap: String,
    producer: Option<BaseProducer<Deliveries>>,
    is_open: bool,
}

impl Driver {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        config.set("broker.address.family", "v4");
        config
    }

    fn handle(&mut self, request: &Value) -> Answer {
        match text(request, "do") {
            "txn_init" => self.init(request),
            "txn_send" => {
                let values: Vec<Vec<u8>> = request["values"]
                    .as_array()
                    .ok_or("no values")?
                    .iter()
                    .map(|value| Ok(BASE64_STANDARD.decode(value.as_str().ok_or("no text")?)?))
                    .collect::<Result<_, Box<dyn Error>>>()?;
                let partition = request["partition"].as_i64().unwrap_or(0) as i32;
                self.send(text(request, "topic"), partition, &values)
            }
            "txn_end" => self.end(flag(request, "commit")),
            "txn_transform" => self.transform(request),
            word => Err(format!("unknown word {word}").into()),
        }
    }

    fn producer(&self) -> Result<&BaseProducer<Deliveries>, Box<dyn Error>> {
        self.producer.as_ref().ok_or_else(|| "no producer".into())
    }

    fn init(&mut self, request: &Value) -> Answer {
        let mut config = self.config();
        config.set("transactional.id", text(request, "id"));
        config.set("transaction.timeout.ms", request["timeout_ms"].to_string());
        config.set("linger.ms", "0");
        let producer = BaseProducer::from_config_and_context(&config, Deliveries::default())?;
        producer.init_transactions(TIMEOUT)?;
        self.producer = Some(producer);
        Ok(Value::Null)
    }

    fn send(&mut self, topic: &str, partition: i32, values: &[Vec<u8>]) -> Answer {
        let producer = self.producer()?;
        if !self.is_open {
            producer.begin_transaction()?;
        }
        for value in values {
            let record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition).payload(value);
            producer.send(record).map_err(|(error, _)| error)?;
        }
        producer.flush(TIMEOUT)?;
        let failed = producer.context().0.lock().unwrap().pop();
        self.is_open = true;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(Value::Null),
        }
    }

    fn end(&mut self, commit: bool) -> Answer {
        self.is_open = false;
        let producer = self.producer()?;
        if commit {
            producer.commit_transaction(TIMEOUT)?;
        } else {
            producer.abort_transaction(TIMEOUT)?;
        }
        Ok(Value::Null)
    }

    fn transform(&mut self, request: &Value) -> Answer {
        let source = text(request, "source");
        let consumer: BaseConsumer = self
            .config()
            .set("group.id", text(request, "group"))
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .create()?;
        consumer.subscribe(&[source])?;
        let count = request["count"].as_u64().unwrap_or(0) as usize;
        let mut read = Vec::new();
        let mut offsets = TopicPartitionList::new();
        let deadline = Instant::now() + TIMEOUT;
        while read.len() < count {
            if Instant::now() > deadline {
                return Err(format!("only {} records", read.len()).into());
            }
            // None also stands for events such as a rebalance.
            let Some(message) = consumer.poll(Duration::from_millis(500)) else {
                continue;
            };
            let message = message?;
            read.push(message.payload().unwrap_or_default().to_vec());
            let next = Offset::Offset(message.offset() + 1);
            if offsets.set_partition_offset(source, message.partition(), next).is_err() {
                offsets.add_partition_offset(source, message.partition(), next)?;
            }
        }
        let changed: Vec<Vec<u8>> = read.iter().map(|value| [value, &b"!"[..]].concat()).collect();
        self.send(text(request, "target"), 0, &changed)?;
        let metadata = consumer.group_metadata().ok_or("no group")?;
        self.producer()?.send_offsets_to_transaction(&offsets, &metadata, TIMEOUT)?;
        self.end(flag(request, "commit"))?;
        Ok(read.iter().map(|value| BASE64_STANDARD.encode(value)).collect())
    }
}

fn text<'a>(request: &'a Value, field: &str) -> &'a str {
    request[field].as_str().unwrap_or_default()
}

fn flag(request: &Value, field: &str) -> bool {
    request[field].as_bool().unwrap_or(false)
}

fn main() -> Result<(), Box<dyn Error>> {
    let bootstrap = env::args().nth(1).ok_or("usage: kwire-compat BOOTSTRAP")?;
    let mut driver = Driver { bootstrap, producer: None, is_open: false };
    for line in stdin().lines() {
        let answer = match driver.handle(&serde_json::from_str(&line?)?) {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        println!("{answer}");
        stdout().flush()?;
    }
    Ok(())
}
