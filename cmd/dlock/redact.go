package main

import (
	"cmp"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// redacted stands where a secret was.
const redacted = "xxxxx"

// redactor hides the secrets of store URLs in text. What is a secret is decided by
// where it stands in the URL: a password, the value of a parameter that may be one,
// and, because the errors about malformed URLs quote them, what is in a place
// where nothing belongs. Hosts, ports, databases and known parameters are not.
type redactor struct {
	secrets []string // longest first
	pairs   []string // key=value whose value is too plain to be hidden elsewhere
}

const (
	// shortSecret is the length below which a secret is only hidden where it
	// stands alone, since otherwise it would be hidden inside other words.
	shortSecret = 4
	// plainValue is the length below which the value of an unknown parameter is
	// only hidden together with its name: "1" and "true" are in many texts.
	plainValue = 6
)

// newRedactor collects the secrets of the store URL in the environment and of a
// command line. Of its words the values of --store always count, the others
// if they look like a misplaced URL.
func newRedactor(environment string, args []string) *redactor {
	r := &redactor{}
	r.learn(environment)
	before := ""
	for _, arg := range args {
		value, isStore := strings.CutPrefix(arg, "--store=")
		isStore = isStore || before == "--store"
		before = arg
		if isStore || strings.Contains(arg, "://") || strings.Contains(arg, "@") {
			r.learn(value)
		}
	}
	r.sort()
	return r
}

func (r *redactor) sort() {
	slices.SortFunc(r.secrets, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	r.secrets = slices.Compact(r.secrets)
}

// learnMore notes the secrets of a URL that was found later. It must not be called
// while others write.
func (r *redactor) learnMore(url string) {
	r.learn(url)
	r.sort()
}

// empty reports whether there is no secret at all.
func (r *redactor) empty() bool { return len(r.secrets)+len(r.pairs) == 0 }

// learn notes what may be secret in a URL, or in what was meant to be one.
func (r *redactor) learn(word string) {
	scheme, rest, found := strings.Cut(word, "://")
	if !found {
		rest = word // "redis:/u:p@h", "u:p@h"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if !isUserName(scheme, rest[:at]) {
			r.learnUserinfo(rest[:at])
		}
		rest = rest[at+1:]
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	for host := range strings.SplitSeq(rest[:end], ",") {
		// "redis://user:secret" without a host: the port is no number.
		if colon := strings.LastIndexByte(host, ':'); colon >= 0 && !isPort(host[colon+1:]) {
			r.add(host[colon+1:])
		}
	}
	if _, query, found := strings.Cut(word, "?"); found {
		r.learnQuery(query)
	}
	if _, fragment, found := strings.Cut(word, "#"); found {
		r.add(fragment)
	}
}

// isUserName reports whether info is a user alone, in a URL in which a user alone is
// not a password that was put in the wrong place.
func isUserName(scheme, info string) bool {
	switch scheme {
	case "postgres", "postgresql", "mysql":
		return !strings.ContainsAny(info, ":/?#,@%")
	}
	return false
}

// learnUserinfo takes "user:password" apart, if it is as simple as that.
func (r *redactor) learnUserinfo(info string) {
	user, password, found := strings.Cut(info, ":")
	if found && !strings.ContainsAny(user, "/?#,@") && !strings.ContainsAny(password, ":,@") {
		r.add(password)
		return
	}
	r.add(info)
}

// plainParameters are the parameters of store URLs whose values are no secret.
var plainParameters = []string{
	"protocol", "scheme", "order", "table_prefix", "tls", "sslmode", "default_query_exec_mode", "sentinel_username",
	"charset", "collation", "application_name",
}

// fileParameters name files. What is no path may be what is in the file.
var fileParameters = []string{"ca", "cert", "key", "socket", "sslrootcert", "sslcert", "sslkey"}

// isPlain reports whether a parameter's value is no secret, because of its name or, where
// the name does not settle it, because it is just what belongs there.
func isPlain(key, value string) bool {
	switch {
	case slices.Contains(plainParameters, key):
		return true
	case slices.Contains(fileParameters, key):
		return strings.Contains(value, "/") || strings.Contains(value, "%2F") || strings.HasSuffix(value, ".pem")
	case isSecretParameter(key):
		return false
	case key == "acl":
		return value == "world" || value == "creator"
	}
	_, notDuration := time.ParseDuration(value)
	return value == "true" || value == "false" || notDuration == nil || value != "" && isPort(value)
}

// isSecretParameter reports whether a parameter holds a secret by its name.
func isSecretParameter(key string) bool {
	key = strings.ToLower(key)
	return strings.Contains(key, "pass") || strings.Contains(key, "pwd") || strings.Contains(key, "secret") ||
		strings.Contains(key, "token") || strings.Contains(key, "auth")
}

func (r *redactor) learnQuery(query string) {
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return strings.ContainsRune("&;?#", c) }) {
		key, value, found := strings.Cut(pair, "=")
		switch {
		case !found:
			r.add(pair)
		case isPlain(key, value):
		case len(value) < plainValue && !isSecretParameter(key):
			r.pairs = append(r.pairs, pair)
		default:
			r.add(value)
		}
	}
}

// add notes a secret in all forms in which an error could quote it: as it is,
// decoded, and, because quoting can put escapes anywhere, each word of it.
func (r *redactor) add(secret string) {
	forms := []string{secret}
	if plain, err := url.PathUnescape(secret); err == nil {
		forms = append(forms, plain)
	} else {
		forms = append(forms, unescapeLoosely(secret))
	}
	for _, plain := range forms { // as a URL that is shown escapes it
		forms = append(forms, url.PathEscape(plain), url.QueryEscape(plain), (&url.URL{Path: plain}).EscapedPath())
	}
	for _, form := range forms {
		if form == "" {
			continue
		}
		r.secrets = append(r.secrets, form)
		for word := range strings.FieldsFuncSeq(form, func(c rune) bool { return !isWordRune(c) }) {
			if len(word) >= shortSecret {
				r.secrets = append(r.secrets, word)
			}
		}
	}
}

// unescapeLoosely decodes the escapes that are right and keeps the others.
func unescapeLoosely(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := url.PathUnescape(text[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// clean returns text without the secrets.
func (r *redactor) clean(text string) string {
	for _, pair := range r.pairs {
		key, _, _ := strings.Cut(pair, "=")
		text = strings.ReplaceAll(text, pair, key+"="+redacted)
	}
	for _, secret := range r.secrets {
		if len(secret) >= shortSecret {
			text = strings.ReplaceAll(text, secret, redacted)
		} else {
			text = replaceAlone(text, secret)
		}
	}
	return text
}

// replaceAlone hides word where it is not a part of another one, nor of an address or
// a path: "1" is not hidden in "127.0.0.1:6379/1".
func replaceAlone(text, word string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, word)
		if i < 0 {
			return b.String() + text
		}
		before := lastRune(b.String() + text[:i])
		after := firstRune(text[i+len(word):])
		b.WriteString(text[:i])
		port := before == ':' && after != '@' && isPort(word)
		if port || isWordRune(before) || isWordRune(after) || strings.ContainsRune("./-_", before) || strings.ContainsRune("./-_", after) {
			b.WriteString(word)
		} else {
			b.WriteString(redacted)
		}
		text = text[i+len(word):]
	}
}

func firstRune(text string) rune {
	for _, c := range text {
		return c
	}
	return 0
}

func lastRune(text string) rune {
	runes := []rune(text)
	if len(runes) == 0 {
		return 0
	}
	return runes[len(runes)-1]
}

func isWordRune(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// isPort says whether text can be a port. A longer number is a password.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}

// writer hides the secrets in what is written to w. A secret must not be split
// over two writes; messages are written whole.
func (r *redactor) writer(w io.Writer) io.Writer { return redactingWriter{r, w} }

type redactingWriter struct {
	redactor *redactor
	to       io.Writer
}

func (w redactingWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.redactor.clean(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
