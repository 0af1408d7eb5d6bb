"""Kafka by its address: what users write (`address`), whether a broker answers (`probe`), and topics as streams and sinks (`topics`)."""
