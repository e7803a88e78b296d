"""Statistics: witnesses of the formulas, and a study of false alarms and power."""
