package terminal

import "testing"

func TestColourOnlyOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"TERM": "dumb"}, false},
	} {
		if got := useColour(c.terminal, func(key string) string { return c.env[key] }); got != c.want {
			t.Errorf("terminal %v, %v: %v", c.terminal, c.env, got)
		}
	}
}
