package stores

import "testing"

func TestRedisIdentity(t *testing.T) {
	checkIdentities(t, [][]string{
		{"redis://h", "redis://h:6379", "redis://H/", "redis://h:6379/0", "REDIS://ann:secret@h?db=0", "redis://h/0?protocol=redisson", "rediss://h", "redis://h/00"},
		{"redis://localhost", "redis://:6379", "redis://:secret@localhost/0"},
		{"redis://h/1", "redis://h?db=1", "redis://h/0?db=1"},
		{"redis://h:6380"},
		{"redis://h?protocol=plain", "redis://h:6379/0?protocol=plain&read_timeout=1s"},
		{"redis://[::1]", "redis://[::1]:6379"},
		{"redis+sentinel://a,b/main", "redis+sentinel://b:26379,a:26379/main", "redis+sentinel://u:secret@b,a/main?db=0"},
		{"redis+sentinel://a,b/other"},
		{"redis+sentinel://a,b/main?db=1"},
		{"redis+cluster://a:1,b:1", "redis+cluster://b:1,a:1/"},
		{"redlock://a,b,c", "redlock://c:6379,b,a:6379/0", "redlock://secret@b,c,a?protocol=plain"},
		{"redlock://a,b,c/2", "redlock://c,b,a?db=2"},
	})
}
