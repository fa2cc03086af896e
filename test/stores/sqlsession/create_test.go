package sqlsession_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestAdviceToCreateByHandNeedsARefusal: a connection that breaks is no reason to ask an administrator for a table.
func TestAdviceToCreateByHandNeedsARefusal(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		broken := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("CREATE ")) }, (*proxy.Conn).Reset)
		_, err := sqlsession.New(t.Context(), s.openDB(t, p.Addr()), &sqlsession.Options{Dialect: s.dialect, Scheme: s.scheme})
		await.Event(t, broken, "the store creates its table")
		if !errors.Is(err, driver.ErrUnreachable) || strings.Contains(err.Error(), "by hand") {
			t.Errorf("after a broken connection: %v", err)
		}
	})
}
