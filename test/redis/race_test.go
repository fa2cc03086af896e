//go:build race

package redis

// raceEnabled: the race detector makes everything several times slower.
const raceEnabled = true
