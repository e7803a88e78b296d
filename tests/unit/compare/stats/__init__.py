"""Statistics: checks of the formulas, and a study of false alarms and power."""
