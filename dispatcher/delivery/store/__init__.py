"""The state of deliveries in Postgres: statements, transactions and connections."""
