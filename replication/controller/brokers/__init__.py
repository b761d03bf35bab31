"""The brokers as the controller knows them: registration and leases, and what follows when one leaves."""
