"""Authorization: the access rules of Kafka's StandardAuthorizer, and what each API needs."""
