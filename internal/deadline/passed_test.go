package deadline_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/deadline"
)

// tardy is a context that does not end at its deadline.
type tardy struct{ context.Context }

func (tardy) Deadline() (time.Time, bool) { return time.Now(), true }

func TestPassed(t *testing.T) {
	cause := errors.New("cause")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	over, stop := context.WithDeadlineCause(t.Context(), time.Now(), cause)
	defer stop()
	later, stop2 := context.WithTimeout(t.Context(), time.Hour)
	defer stop2()
	for name, c := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"no limit":  {t.Context(), nil},
		"later":     {later, nil},
		"cancelled": {cancelled, cause},
		"over":      {over, cause},
		"tardy":     {tardy{t.Context()}, context.DeadlineExceeded},
	} {
		if err := deadline.Passed(c.ctx); !errors.Is(err, c.want) || err == nil != (c.want == nil) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
}
