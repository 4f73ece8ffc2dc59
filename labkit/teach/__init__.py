"""What makes the system a lab: laws, planted bugs, exercises and notebooks."""
