"""What a study found: conclude.py returns it as typed findings, conclusions_page.py and details.py as Markdown."""
