package servers

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

func TestTLSRejectsUnknownClients(t *testing.T) {
	t.Parallel()
	s := RunRedisTLS(t)
	ctx := limit(t)

	if reply, err := wire.RedisCall(ctx, s.Addr(), "PING"); err == nil {
		t.Errorf("answer %v without TLS", reply)
	}
	_, err := login(ctx, s.Addr(), &tls.Config{}, Anything)
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
		t.Errorf("a client that does not know the authority gets %v, want an unknown authority", err)
	}
	for name, user := range map[string]User{
		"a wrong password": {Name: Anything.Name, Password: "wrong"},
		"an unknown user":  {Name: "nobody", Password: Anything.Password},
		"the default user": {Name: "default", Password: ""},
	} {
		_, err := login(ctx, s.Addr(), s.Config, user)
		refused(t, name, err, "WRONGPASS")
	}
	conn, err := tls.Dial("tcp", s.Addr(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = wire.NewRedisConn(conn).Call("GET", "a")
	refused(t, "GET without a user", err, "NOAUTH")
}

func TestTLSCertificateIsForBothNames(t *testing.T) {
	t.Parallel()
	s := RunRedisTLS(t)
	authority, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) || bytes.Contains(authority, []byte("PRIVATE")) {
		t.Fatalf("%s is not a certificate alone", s.CAFile)
	}
	for name, good := range map[string]bool{"localhost": true, "127.0.0.1": true, "elsewhere.example": false} {
		conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: pool, ServerName: name})
		if (err == nil) != good {
			t.Errorf("the certificate is good for %s: %v (%v), want %v", name, err == nil, err, good)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestTLSUsersHaveTheirRights(t *testing.T) {
	t.Parallel()
	s := RunRedisTLS(t)
	ctx := limit(t)
	script := []string{"EVAL", "return redis.call('SET', KEYS[1], 1)", "1"}
	for _, c := range []struct {
		user    User
		command []string
		refusal string
	}{
		{Anything, []string{"SET", "a", "1"}, ""},
		{Anything, append(script, "a"), ""},
		{Anything, []string{"PUBLISH", "a", "1"}, ""},
		{Anything, []string{"CONFIG", "GET", "maxmemory-policy"}, ""},
		{NoScripts, []string{"SET", "a", "1"}, ""},
		{NoScripts, append(script, "a"), "NOPERM"},
		{NoScripts, []string{"EVALSHA", strings.Repeat("0", 40), "0"}, "NOPERM"},
		{OrdersOnly, []string{"SET", "orders:7", "1"}, ""},
		{OrdersOnly, append(script, "orders:7"), ""},
		{OrdersOnly, append(script, "token:{orders:7}"), ""},
		{OrdersOnly, []string{"PUBLISH", "channel:{orders:7}", "1"}, ""},
		{OrdersOnly, []string{"SET", "invoices:7", "1"}, "NOPERM"},
		{OrdersOnly, append(script, "invoices:7"), "NOPERM"},
		{OrdersOnly, []string{"PUBLISH", "channel:{invoices:7}", "1"}, "NOPERM"},
	} {
		conn, err := login(ctx, s.Addr(), s.Config, c.user)
		if err != nil {
			t.Fatalf("%s: %v", c.user.Name, err)
		}
		_, err = conn.Call(c.command...)
		conn.Close()
		what := c.user.Name + ": " + strings.Join(c.command, " ")
		if c.refusal != "" {
			refused(t, what, err, c.refusal)
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTLSURLNamesTheUser(t *testing.T) {
	t.Parallel()
	s := RunRedisTLS(t)
	for text, user := range map[string]User{s.URL(): Anything, s.URLFor(NoScripts): NoScripts} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		if u.Scheme != "rediss" || u.Host != s.Addr() || u.Path != "/0" || u.User.Username() != user.Name || password != user.Password {
			t.Errorf("the URL is %s, want it to name %s with its password", text, user.Name)
		}
	}
}

func TestTLSSurvivesRestartEmpty(t *testing.T) {
	t.Parallel()
	s := RunRedisTLS(t, "--maxmemory-policy", "allkeys-lru")
	try(t, s.Kill)
	try(t, s.RestartEmpty)
	conn, err := login(limit(t), s.Addr(), s.Config, Anything) // with the same certificate
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info, err := conn.Call("INFO", "memory")
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := info.(string); !strings.Contains(text, "maxmemory_policy:allkeys-lru") {
		t.Error("the argument was not passed to the server")
	}
	try(t, s.Stop)
	gone(t, s.Dir())
}

func refused(t *testing.T, what string, err error, code string) {
	t.Helper()
	if answer, ok := errors.AsType[wire.RedisError](err); !ok || !strings.HasPrefix(answer.Error(), code) {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}
