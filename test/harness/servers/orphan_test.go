package servers

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/child"
)

// endVariable makes the test binary simulate a test run that ends badly.
const endVariable = "DLOCK_SERVERS_END"

func TestMain(m *testing.M) {
	if how := os.Getenv(endVariable); how != "" {
		if err := endBadly(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // without Stop
	}
	os.Exit(m.Run())
}

// endBadly starts servers, writes their folders, and does not stop them.
func endBadly(how string) error {
	var dirs []string
	for _, kind := range []*Kind{Redis, Postgres} { // a server of one process, and a server of many
		s, err := Start(kind)
		if err == nil && how == "killed while a server is paused" {
			err = s.Pause() // a stopped process must be cleaned up, too
		}
		if err != nil {
			return err
		}
		dirs = append(dirs, s.Dir())
	}
	fmt.Println(strings.Join(dirs, " "))
	switch how {
	case "panic":
		panic("on purpose")
	case "exit":
		return nil
	}
	select {} // until the parent kills this process
}

func TestNothingIsLeftAfter(t *testing.T) {
	for _, how := range []string{"panic", "exit", "killed", "killed while a server is paused"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := child.Run(t, child.Self(endVariable+"="+how))
			line, err := p.Receive(2 * await.Limit)
			dirs := strings.Fields(line)
			if err != nil || len(dirs) != 2 {
				t.Fatalf("the process started servers in %q, %v; want two", dirs, err)
			}
			if strings.HasPrefix(how, "killed") {
				p.Kill()
			}
			await.Until(t, "nothing is left of the servers", func() bool { return len(left(dirs...)) == 0 })
		})
	}
}
