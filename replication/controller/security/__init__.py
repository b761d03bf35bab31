"""What the controller knows of users: their SCRAM credentials and delegation tokens, and what they may do."""
