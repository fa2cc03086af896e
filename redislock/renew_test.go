package redislock

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// TestRenewalNeedsEvidence: only the reply of the script renews a lock.
func TestRenewalNeedsEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		reply any
		want  [2]error
	}{
		"both renewed":    {[]any{}, [2]error{nil, nil}},
		"one gone":        {[]any{int64(2)}, [2]error{nil, driver.ErrNotHeld}},
		"another reply":   {"OK", [2]error{driver.ErrUnreachable, driver.ErrUnreachable}},
		"no reply":        {nil, [2]error{driver.ErrUnreachable, driver.ErrUnreachable}},
		"unknown element": {[]any{"2"}, [2]error{driver.ErrUnreachable, driver.ErrUnreachable}},
		"out of range":    {[]any{int64(3)}, [2]error{driver.ErrUnreachable, driver.ErrUnreachable}},
	} {
		cmd := redis.NewCmd(t.Context())
		cmd.SetVal(c.reply)
		r := &scriptRun{cmd: noRetryCmd{cmd}, keys: []string{"a", "b"}, at: []int{0, 1}}
		var errs [2]error
		r.reportRenewal(errs[:])
		for i, want := range c.want {
			if !errors.Is(errs[i], want) || (errs[i] == nil) != (want == nil) {
				t.Errorf("%s: lock %d: %v; want %v", name, i, errs[i], want)
			}
		}
	}
}
