"""What users do not have either: structlog would load all of rich, which import-linter brings, into every process."""

raise ImportError("a user's installation has no rich")
