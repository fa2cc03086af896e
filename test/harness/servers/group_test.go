package servers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

func TestGroupHasIndependentServers(t *testing.T) {
	t.Parallel()
	g := RunGroup(t, 5, Redis, "--appendonly", "no")
	ids := make(map[string]bool)
	for _, s := range g {
		answers(t, s)
		if g.At(s.Addr()) != s {
			t.Errorf("At(%s) is another server", s.Addr())
		}
		info, err := wire.RedisText(limit(t), s.Addr(), "INFO")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(info) {
			if strings.HasPrefix(line, "run_id:") {
				ids[line] = true
			}
		}
		if want := "aof_enabled:0"; !strings.Contains(info, want) {
			t.Errorf("INFO does not report %s", want)
		}
	}
	if len(ids) != 5 {
		t.Errorf("%d servers run, want 5", len(ids))
	}
	try(t, g[2].Kill)
	if got := len(g.running()); got != 4 {
		t.Errorf("%d servers run after Kill, want 4", got)
	}
	try(t, g.Stop)
	for _, s := range g {
		gone(t, s.Dir())
	}
}

func TestGroupStartsAllOrNone(t *testing.T) {
	t.Parallel()
	fails := errors.New("no third server")
	var dirs []string
	starting := make(chan *Server, 2)
	_, err := startEach(3, func(i int) (*Server, error) {
		if i == 2 {
			dirs = append(dirs, (<-starting).Dir(), (<-starting).Dir())
			return nil, fails
		}
		s, err := Start(Redis)
		starting <- s
		return s, err
	})
	if !errors.Is(err, fails) {
		t.Errorf("starting a group returned %v, want %v", err, fails)
	}
	for _, dir := range dirs {
		gone(t, dir)
	}
}

func TestUntilReportsTheLastError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	tries := 0
	err := until(ctx, "it works", func(ctx context.Context) error {
		if tries++; tries == 2 {
			cancel(errors.New("no more time"))
			return ctx.Err()
		}
		return errors.New("it does not")
	})
	for _, want := range []string{"it works", "it does not", "no more time"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to say %q", err, want)
		}
	}
}
