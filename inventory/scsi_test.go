package inventory

import "testing"

func TestSCSIAddress(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]int{
		"0:0:0:0": {0, 0}, "6:0:1:2": {1, 2}, "12:2:999:999": {999, 999},
	} {
		if target, lun, ok := scsiAddress(name); !ok || [2]int{target, lun} != want {
			t.Errorf("scsiAddress(%q) = %d, %d, %v; want %v", name, target, lun, ok, want)
		}
	}
	for _, name := range []string{"", "host0", "target0:0:0", "0:0:0", "0:0:0:0:0", "0:0:0:x", "0:0:1000:0", "0:0:0:16385", "0:0:99999999999999999999:0", "0003:046D:C31C.0001", "0000:05:00.0:0.0"} {
		if target, lun, ok := scsiAddress(name); ok {
			t.Errorf("scsiAddress(%q) = %d, %d; want none", name, target, lun)
		}
	}
}
