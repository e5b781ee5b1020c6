"""Measuring the gate on labelled data."""
