"""What the audits go by: brokers' files and events, and the comparison of logs, with each other and with ledgers."""
