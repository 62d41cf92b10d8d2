"""The paper's claims and what the runs say of them."""
