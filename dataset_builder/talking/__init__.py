"""What is said around calls: requests, thoughts, results, answers, whole conversations."""
