"""What the control API answers that is no JSON object: texts of another type, and streams of events."""
