"""What a run will measure and what that is expected to take, before anything is submitted."""
