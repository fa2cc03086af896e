package sqlite

import (
	"testing"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
)

// roles are what other processes do, with the arguments they were given.
var roles = map[string]func(args []string) error{
	"agent": agent,
	"busy":  busy,
	"crowd": crowd,
	"once":  readOnlyOnce,
}

func TestMain(m *testing.M) {
	bundle.Tests{Open: openFile, Agent: faults.RunAgent, Roles: roles}.Main(m)
}
