"""What replica audit, timeline and causes go by: brokers' files and events, and the comparison of logs."""
