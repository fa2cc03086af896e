package main

// canary is a password that must never be seen again.
const canary = "Canary7birdSings"
