package digits

import "testing"

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -999: "-999", -1000: "-1,000", 123456: "123,456", 1000001: "1,000,001"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is written %s; want %s", n, got, want)
		}
	}
}
