"""Exhibits that go beyond the paper."""
