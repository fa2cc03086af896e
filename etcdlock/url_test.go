package etcdlock

import (
	"errors"
	"strings"
	"testing"
)

func TestURLIsParsed(t *testing.T) {
	for raw, want := range map[string]struct {
		endpoints, prefix, user, password string
	}{
		"etcd://h":                      {"http://h:2379", "", "", ""},
		"etcd://h:1/":                   {"http://h:1", "", "", ""},
		"ETCD://a:1,b,c:3/shop":         {"http://a:1 http://b:2379 http://c:3", "shop/", "", ""},
		"etcd://h/a/b/":                 {"http://h:2379", "a/b/", "", ""},
		"etcd://h//registry":            {"http://h:2379", "/registry/", "", ""},
		"etcd://h/a%20b":                {"http://h:2379", "a b/", "", ""},
		"etcd://[::1]":                  {"http://[::1]:2379", "", "", ""},
		"etcd://[::1]:5,h":              {"http://[::1]:5 http://h:2379", "", "", ""},
		"etcd://ann:p%40ss%3F%25@h/x":   {"http://h:2379", "x/", "ann", "p@ss?%"},
		"etcd://ann:p/a:ss@w@h:1/x":     {"http://h:1", "x/", "ann", "p/a:ss@w"},
		"etcd://h?tls=true":             {"https://h:2379", "", "", ""},
		"etcd://ann:x@h,i/p?tls=false&": {"http://h:2379 http://i:2379", "p/", "ann", "x"},
	} {
		u, config, err := parseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		prefix := prefixOf(u.Path, "")
		if got := strings.Join(config.Endpoints, " "); got != want.endpoints || prefix != want.prefix ||
			config.Username != want.user || config.Password != want.password {
			t.Errorf("%s is %q, prefix %q, user %q, password %q; want %q", raw, got, prefix, config.Username, config.Password, want)
		}
	}
}

func TestBadURLIsRejectedWithoutShowingThePassword(t *testing.T) {
	for raw, says := range map[string]string{
		"":                             "does not begin",
		"redis://h":                    "does not begin",
		"etcd:h":                       "does not begin",
		"etcd://":                      "host",
		"etcd:///p":                    "host",
		"etcd://a,,b":                  "host",
		"etcd://:1":                    "host",
		"etcd://h:port":                "port",
		"etcd://h:99999":               "port",
		"etcd://ann:secret:1":          "port",
		"etcd://secret@h":              "user:password",
		"etcd://ann:@h":                "user:password",
		"etcd://ann:secret%zz@h":       "hexadecimal",
		"etcd://h/%zz":                 "hexadecimal",
		"etcd://ann:sec?ret@h":         "%3F",
		"etcd://h?secret=1":            "unknown parameter",
		"etcd://h?SECRET%=1":           "cannot be read",
		"etcd://h?s3cret=1":            "a-z",
		"etcd://h?tls=maybe":           "tls",
		"etcd://h?ca=/x":               "tls=true",
		"etcd://h?tls=true&ca=/no/one": "ca",
		"etcd://h?tls=true&cert=/none": "cert",
		"etcd://h?tls=true&ca=go.mod":  "certificate",
	} {
		_, err := Open(t.Context(), raw, nil)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want ErrURL with %q", raw, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is in %v", raw, err)
		}
	}
}

func TestNewRejectsANilClient(t *testing.T) {
	if _, err := New(nil, nil); err == nil {
		t.Error("New(nil, nil) succeeds")
	}
}
