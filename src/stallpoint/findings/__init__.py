"""What the tables say: verdicts, causes, remedies, trust, and claims."""
