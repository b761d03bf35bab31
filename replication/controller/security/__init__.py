"""What the controller knows of users: their SCRAM credentials, and what they may do."""
