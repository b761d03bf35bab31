"""Rules on what nodes keep, looked at after every step: of leaders, logs on disks, groups, and the controller."""
