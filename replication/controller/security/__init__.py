"""What the controller knows of users: their SCRAM credentials."""
