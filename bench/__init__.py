"""Figures and demonstrations; run by `make`, shipped with no package."""
