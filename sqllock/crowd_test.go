package sqllock

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// TestCrowd: a process shares the polls if none of its waiters depends on its own.
func TestCrowd(t *testing.T) {
	plain := func(name string) *waiter { return &waiter{name: name} }
	fair, shared, permit, placed := plain("a"), plain("a"), plain("a"), plain("a")
	fair.req.Fair = true
	shared.req.Mode = driver.Mode{Shared: true}
	permit.req.Mode = driver.Mode{Limit: 3}
	placed.owner = "the owner"
	counted := crowds{"a": 64, "b": 7, "c": 1}
	for what, test := range map[string]struct {
		counted crowds
		waiters []*waiter
		want    int
	}{
		"one name":                  {counted, []*waiter{plain("a")}, 64},
		"two callers":               {counted, []*waiter{plain("a"), plain("a")}, 64},
		"two names":                 {counted, []*waiter{plain("a"), plain("b")}, 7},
		"alone with a name":         {counted, []*waiter{plain("a"), plain("c")}, 1},
		"a name that has just come": {counted, []*waiter{plain("a"), plain("new")}, 0},
		"not counted":               {nil, []*waiter{plain("a")}, 0},
		"a fair waiter":             {counted, []*waiter{plain("a"), fair}, 0},
		"a reader":                  {counted, []*waiter{plain("a"), shared}, 0},
		"a permit":                  {counted, []*waiter{plain("a"), permit}, 0},
		"a place":                   {counted, []*waiter{plain("a"), placed}, 0},
	} {
		ws := waiters{PollGroup: sqldb.NewPollGroup(func(name string, _ *waiter) any { return name }), crowds: test.counted}
		for _, w := range test.waiters {
			ws.Join(w.name, w, func() {})
		}
		names, _ := ws.AwaitedLocked()
		if got := ws.crowdLocked(names, func(place string) bool { return place != "" }); got != test.want {
			t.Errorf("%s: %d processes; want %d", what, got, test.want)
		}
	}
}
