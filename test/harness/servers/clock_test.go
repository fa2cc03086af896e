package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// clocks are kinds of servers, each with a function that reads its clock.
var clocks = []struct {
	kind *Kind
	time func(t *testing.T, s *Server) time.Time
}{
	{Redis, func(t *testing.T, s *Server) time.Time {
		reply, err := wire.RedisCall(limit(t), s.Addr(), "TIME")
		if err != nil {
			t.Fatal(err)
		}
		parts, _ := reply.([]any)
		if len(parts) != 2 {
			t.Fatalf("TIME returned %v", reply)
		}
		return unixTime(t, fmt.Sprint(parts[0]))
	}},
	{MariaDB, func(t *testing.T, s *Server) time.Time {
		return unixTime(t, sqlOf(t, s, "SELECT UNIX_TIMESTAMP(SYSDATE())"))
	}},
	{Postgres, func(t *testing.T, s *Server) time.Time {
		return unixTime(t, sqlOf(t, s, "SELECT extract(epoch FROM clock_timestamp())::bigint"))
	}},
}

func unixTime(t *testing.T, seconds string) time.Time {
	t.Helper()
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(n, 0)
}

func TestClockMovesWhileServerRuns(t *testing.T) {
	for _, c := range clocks {
		t.Run(c.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := Run(t, WithClock(c.kind))
			expect := func(offset time.Duration, when string) {
				t.Helper()
				const tolerance = 30 * time.Second // of a loaded machine
				if got := time.Until(c.time(t, s)); (got - offset).Abs() > tolerance {
					t.Errorf("%s the clock is off by %v, want %v", when, got, offset)
				}
			}
			expect(0, "at first")
			for _, offset := range []time.Duration{time.Hour, -time.Hour, 90 * time.Second, 0, time.Hour} {
				if err := s.SetClock(offset); err != nil {
					t.Fatal(err)
				}
				expect(offset, fmt.Sprintf("after SetClock(%v)", offset))
			}
			try(t, s.Kill)
			try(t, s.Restart)
			expect(time.Hour, "after a restart")
			try(t, s.RestartEmpty)
			expect(time.Hour, "after a restart without data")
			pid := s.proc.PID
			try(t, s.Kill)
			if left, err := filepath.Glob(fmt.Sprintf("/dev/shm/*faketime*_%d", pid)); err != nil || len(left) > 0 {
				t.Errorf("%v is left in shared memory (%v)", left, err)
			}
			try(t, s.Stop)
			gone(t, s.Dir())
		})
	}
}

func TestMovedClockChangesRedisExpiry(t *testing.T) {
	t.Parallel()
	s := Run(t, WithClock(Redis))
	ask(t, s, "SET early 1 EX 600\r\n", "+OK")
	if err := s.SetClock(time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "EXISTS early\r\n", ":"); got != ":0" {
		t.Error("a key of ten minutes is still there after an hour")
	}
	ask(t, s, "SET late 1 PX 60000\r\n", "+OK")
	if err := s.SetClock(0); err != nil {
		t.Fatal(err)
	}
	left, err := wire.RedisCall(limit(t), s.Addr(), "PTTL", "late")
	if err != nil {
		t.Fatal(err)
	}
	if ms, _ := left.(int64); ms < (50 * time.Minute).Milliseconds() {
		t.Errorf("a key has %d ms left after the clock went back by an hour, want about an hour", ms)
	}
}

func TestClockThatIsBehindAdvances(t *testing.T) {
	t.Parallel()
	s := Run(t, WithClock(Redis))
	if err := s.SetClock(-time.Hour); err != nil {
		t.Fatal(err)
	}
	ask(t, s, "SET short 1 PX 50\r\n", "+OK")
	if err := until(limit(t), "a key of 50 ms has expired", func(ctx context.Context) error {
		reply, err := wire.RedisCall(ctx, s.Addr(), "EXISTS", "short")
		if err == nil && reply != int64(0) {
			return errors.New("the key is still there")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestSetClockNeedsWithClock(t *testing.T) {
	t.Parallel()
	s := Run(t, Redis)
	if err := s.SetClock(time.Hour); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no clock") {
		t.Errorf("SetClock returned %v, want no clock", err)
	}
	if _, err := os.Stat(clockFile(s.in)); err == nil {
		t.Error("SetClock has created a clock file")
	}
}
