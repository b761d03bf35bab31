"""`make soak-transactions MINUTES=n`: transactions of stock clients while brokers and clients are killed."""
