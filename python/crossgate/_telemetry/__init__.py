"""Telemetry of decisions: events, the decision log, OpenTelemetry."""
