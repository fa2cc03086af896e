package servers

import (
	"os"
	"testing"
)

// Run starts a server for a test, and stops it when the test ends. If the test
// failed, it logs the server's output.
func Run(t testing.TB, kind *Kind, args ...string) *Server {
	t.Helper()
	s, err := Start(kind, args...)
	if err != nil {
		t.Fatal(err)
	}
	Group{s}.stopAfter(t)
	return s
}

// URL returns the URL of a server of that kind: from the environment if it is set
// there, otherwise of a server that is started for the test.
func URL(t testing.TB, kind *Kind) string {
	t.Helper()
	if url := os.Getenv(kind.Variable()); url != "" {
		return url
	}
	return Run(t, kind).URL()
}
