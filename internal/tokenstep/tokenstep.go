// Package tokenstep makes tokens of a number that a server counts by itself: a revision, a
// transaction or a sequence. The number n makes the tokens from n*Size up to (n+1)*Size-1.
package tokenstep

const bits = 10

// Size is how many tokens a number makes.
const Size = 1 << bits

// First returns the first token of a number. The tokens of numbers below 2^53 fit into a
// signed integer of 64 bits.
func First(number uint64) uint64 { return number << bits }

// Number returns the number of a token.
func Number(token uint64) uint64 { return token >> bits }
