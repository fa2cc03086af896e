//go:build !linux

package stories

import "github.com/dlock-go/dlock/lab/stage"

// The laboratory starts servers on Linux only.
var (
	onServers   []Story
	startStores map[string]func() (*stage.Server, error)
)
