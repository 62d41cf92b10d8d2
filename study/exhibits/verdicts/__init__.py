"""The paper's claims, and verdicts on them from the stored runs."""
