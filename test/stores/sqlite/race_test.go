//go:build race

package sqlite

// raceEnabled: the race detector makes SQLite, which is Go here, ten times slower.
const raceEnabled = true
