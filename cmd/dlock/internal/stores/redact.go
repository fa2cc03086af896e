package stores

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Redacted replaces a secret.
const Redacted = "xxxxx"

// Redactor hides the secrets of store URLs in text: passwords, the values of parameters that
// may be secret and, because errors quote malformed URLs, text at an unexpected position.
type Redactor struct {
	secrets []string // longest first
	pairs   []string // key=value whose value is too common to be hidden elsewhere
}

const (
	shortSecret = 4 // a shorter secret is only hidden as a whole word
	plainValue  = 6 // a shorter value of an unknown parameter, such as "1", is only hidden with its name
)

// NewRedactor collects the secrets of store URLs.
func NewRedactor(urls ...string) *Redactor {
	r := &Redactor{}
	for _, url := range urls {
		r.learn(url)
	}
	slices.SortFunc(r.secrets, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	r.secrets = slices.Compact(r.secrets)
	return r
}

// NewArgsRedactor collects the secrets of a command line: of the values of --store, and of
// other words that look like a misplaced URL.
func NewArgsRedactor(args []string) *Redactor {
	var words []string
	before := ""
	for _, arg := range args {
		value, isStore := strings.CutPrefix(arg, "--store=")
		if isStore || before == "--store" || strings.Contains(arg, "://") || strings.Contains(arg, "@") {
			words = append(words, value)
		}
		before = arg
	}
	return NewRedactor(words...)
}

// HasSecret reports whether a valid store URL contains what may be a secret.
func HasSecret(raw string) bool {
	rest, query, _ := strings.Cut(raw, "?")
	scheme, rest, _ := strings.Cut(rest, ":")
	if raw == "" || strings.EqualFold(scheme, "sqlite") {
		return false
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 && strings.ContainsAny(strings.TrimPrefix(rest[:at], "//"), ":/") {
		return true
	}
	r := &Redactor{}
	r.learnQuery(query)
	return len(r.secrets)+len(r.pairs) > 0
}

// learn adds what may be secret in a URL, or in a text that was meant to be one.
func (r *Redactor) learn(word string) {
	scheme, rest, found := strings.Cut(word, "://")
	if !found {
		rest = word // "redis:/u:p@h", "u:p@h"
	}
	if scheme == "sqlite" {
		r.learnPath(rest)
		return
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if !isUserName(scheme, rest[:at]) {
			r.learnUserinfo(rest[:at])
		}
		rest = rest[at+1:]
	}
	hosts := rest[:strings.IndexAny(rest+"/", "/?#")]
	for host := range strings.SplitSeq(hosts, ",") {
		// "redis://user:secret" without a host: the port is not a number.
		if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') && !isPort(host[colon+1:]) {
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

// learnPath adds what is a misplaced password in the path of an SQLite file.
func (r *Redactor) learnPath(path string) {
	path, query, _ := strings.Cut(path, "?")
	r.learnQuery(query)
	for part := range strings.SplitSeq(path, "/") {
		user := part[:max(0, strings.LastIndexByte(part, '@'))]
		if _, password, found := strings.Cut(user, ":"); found {
			r.add(password)
		}
	}
}

// isUserName reports whether info is a user, and not a misplaced password.
func isUserName(scheme, info string) bool {
	switch scheme {
	case "postgres", "postgresql", "mysql", "mariadb":
		return !strings.ContainsAny(info, ":/?#,@%")
	}
	return false
}

// learnUserinfo adds the password of "user:password", or everything if info is malformed.
func (r *Redactor) learnUserinfo(info string) {
	user, password, found := strings.Cut(info, ":")
	if found && !strings.ContainsAny(user, "/?#,@") && !strings.ContainsAny(password, ":,@") {
		r.add(password)
		return
	}
	r.add(info)
}

// plainParameters are the parameters whose values are not secret.
var plainParameters = []string{
	"protocol", "scheme", "order", "table_prefix", "tls", "sslmode", "default_query_exec_mode", "sentinel_username",
	"charset", "client_encoding", "collation", "application_name", "user", "host", "port", "dbname",
}

// fileParameters are paths of files. A value that is no path may be the content of the file.
var fileParameters = []string{"ca", "cert", "key", "socket", "sslrootcert", "sslcert", "sslkey"}

// secretParameters are the names of parameters whose values are secret, in part.
var secretParameters = regexp.MustCompile(`(?i)pass|pwd|secret|token|auth`)

// isPlain reports whether the value of a parameter is not secret, by its name or by its form.
func isPlain(key, value string) bool {
	switch {
	case slices.Contains(plainParameters, key):
		return true
	case slices.Contains(fileParameters, key):
		return strings.Contains(value, "/") || strings.Contains(value, "%2F") || strings.HasSuffix(value, ".pem")
	case secretParameters.MatchString(key):
		return false
	case key == "acl":
		return value == "world" || value == "creator"
	}
	_, notDuration := time.ParseDuration(value)
	return value == "true" || value == "false" || notDuration == nil || value != "" && isPort(value)
}

func (r *Redactor) learnQuery(query string) {
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return strings.ContainsRune("&;?#", c) }) {
		key, value, found := strings.Cut(pair, "=")
		switch {
		case !found:
			r.add(pair)
		case isPlain(key, value):
		case len(value) < plainValue && !secretParameters.MatchString(key):
			r.pairs = append(r.pairs, pair)
		default:
			r.add(value)
		}
	}
}

// add adds a secret in all forms in which an error could quote it: as it is, decoded,
// escaped and, because quoting can put escapes anywhere, each word of it.
func (r *Redactor) add(secret string) {
	forms := []string{secret, unescape(secret)}
	for _, plain := range forms {
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

var escapes = regexp.MustCompile(`%[0-9a-fA-F]{2}`)

// unescape decodes the valid escapes and keeps invalid ones as they are.
func unescape(text string) string {
	return escapes.ReplaceAllStringFunc(text, func(escape string) string {
		plain, _ := url.PathUnescape(escape)
		return plain
	})
}

// Clean returns text without the secrets.
func (r *Redactor) Clean(text string) string {
	for _, pair := range r.pairs {
		key, _, _ := strings.Cut(pair, "=")
		text = strings.ReplaceAll(text, pair, key+"="+Redacted)
	}
	for _, secret := range r.secrets {
		if len(secret) >= shortSecret {
			text = strings.ReplaceAll(text, secret, Redacted)
		} else {
			text = replaceAlone(text, secret)
		}
	}
	return text
}

// replaceAlone hides word where it is not a part of another word, of an address or of a
// path: "1" is not hidden in "127.0.0.1:6379/1".
func replaceAlone(text, word string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, word)
		if i < 0 {
			return b.String() + text
		}
		before, _ := utf8.DecodeLastRuneInString(b.String() + text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(word):])
		b.WriteString(text[:i])
		port := before == ':' && after != '@' && isPort(word)
		if port || isWordRune(before) || isWordRune(after) || strings.ContainsRune("./-_", before) || strings.ContainsRune("./-_", after) {
			b.WriteString(word)
		} else {
			b.WriteString(Redacted)
		}
		text = text[i+len(word):]
	}
}

func isWordRune(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// isPort reports whether text can be a port. A larger number may be a password.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}
