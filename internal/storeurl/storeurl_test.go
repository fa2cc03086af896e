package storeurl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var schemes = []Scheme{{"db", "1"}, {"dbs", "2"}, {"db+many", "3"}}

func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"db://h":                    "db  [h:1] ",
		"DB://h:7/":                 "db  [h:7] ",
		"dbs://a,b:7,[::1],[::2]:7": "dbs  [a:2 b:7 [::1]:2 [::2]:7] ",
		"db+many://h/a/b%20c/":      "db+many  [h:3] a/b c/",
		"db://:pw@:7":               "db :pw [:7] ",
		"db://u:p%40%3F%25@h/x":     "db u:p@?% [h:1] x",
		"db://u:p/a:ss@w@h:7/x":     "db u:p/a:ss@w [h:7] x",
	} {
		u, err := Parse(raw, schemes...)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		user := ""
		if u.User+u.Password != "" {
			user = u.User + ":" + u.Password
		}
		if got := fmt.Sprintf("%s %s %v %s", u.Scheme, user, u.Hosts, u.Path); got != want {
			t.Errorf("%s is %q; want %q", raw, got, want)
		}
	}
}

func TestBadURLsShowNoPassword(t *testing.T) {
	for raw, says := range map[string]string{
		"":                   "does not begin with db://, dbs:// or db+many://",
		"secret":             "does not begin",
		"http://secret":      "does not begin",
		"db:h":               "does not begin",
		"db://":              "a host is missing",
		"db://u:secret@":     "a host is missing",
		"db://a,,b":          "a host is missing",
		"db://u:secret":      "port",
		"db://h:70000":       "70000 is no port: ports end at 65535",
		"db://u:123456":      "password is followed by '@'",
		"db://h:-1":          "port",
		"db://h:+80":         "port",
		"db://h:":            "port",
		"db://::1":           "port",
		"db://u:secret%zz@h": "hexadecimal",
		"db://h/secret%zz":   "hexadecimal",
		"db://u:se?cret@h":   "%3F",
		"db://h?se%zz=cret":  "cannot be read",
		"db://h?secret7=1":   "a-z",
	} {
		_, err := Parse(raw, schemes...)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an error with %q", raw, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: the error may show a password: %v", raw, err)
		}
	}
}

func TestParameters(t *testing.T) {
	u, err := Parse("db://h?order=fair&secret=1&limit=5", schemes...)
	if err != nil {
		t.Fatal(err)
	}
	if order, err := u.TakeOne("order", "fair", "unfair"); order != "fair" || err != nil {
		t.Errorf("order is %q, %v", order, err)
	}
	if order, err := u.TakeOne("order", "fair", "unfair"); order != "" || err != nil {
		t.Errorf("order, after it was taken, is %q, %v", order, err)
	}
	if _, err := u.TakeOne("limit", "few", "many"); err == nil || err.Error() != `limit is "5", not few or many` {
		t.Errorf("limit: %v", err)
	}
	if err := u.Done("order and limit"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("with an unknown parameter: %v", err)
	}
	u.Take("secret")
	if err := u.Done("order and limit"); err != nil {
		t.Errorf("after all parameters were taken: %v", err)
	}
}

func TestTLS(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]struct {
		secure bool
		says   string
	}{
		"":                       {},
		"tls=false":              {},
		"tls=true":               {secure: true},
		"tls=maybe":              {says: "not true or false"},
		"ca=/x":                  {says: "tls=true"},
		"tls=true&ca=/no/such":   {says: "ca: "},
		"tls=true&ca=" + empty:   {says: "no certificate"},
		"tls=true&cert=/no/such": {says: "cert and key: "},
	} {
		u, err := Parse("db://h?"+query, schemes...)
		if err != nil {
			t.Fatal(err)
		}
		config, err := u.TakeTLS(false)
		if (err != nil) != (want.says != "") || err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v; want an error with %q", query, err, want.says)
		}
		if (config != nil) != want.secure {
			t.Errorf("%s: TLS is %v; want %v", query, config, want.secure)
		}
	}
	u, err := Parse("db://h", schemes...)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := u.TakeTLS(true); config == nil || err != nil {
		t.Errorf("TLS required by the scheme: %v, %v", config, err)
	}
}
