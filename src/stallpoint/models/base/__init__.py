"""What all models stand on: statistics over visits, measured points and their parts, tables and checks."""
