package device

import "testing"

func TestPlaceholderSerials(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", " ", "0", "42", "1.0", "??", "???????",
		"000000", "0000000000000000", "00:00:00:00:00:00", "00-00-00-00", "ffffffff", "FFFFFFFFFFFF", "fffff", "xxxxxxxx", "1111", "........",
		"0001",     // CP2102 as it leaves the factory
		"00000001", // factory default of CP2102
		"001", "SN0001", "0x0001", "S/N: 0001",
		"123", "1234", "123456", "12345678", "123456789", "1234567890", "0123456789", "01234567", "0123456789ABCDEF",
		"123456789ABC", "1234567890ABCDEF"[:10], "123456789012", "12345678901234567890", "123456789abcdef", "ABCDEF", "abcdefghijkl", "SN12345678",
		"001000001", "AAAABBBBCCCC1", "AABBCC", "112233",
		"200901010001", "20100201396000000", "20120501030900000", "20120501", // card readers, keyboards
		"01.00.00", "01.00.00.00", "REV8", // cameras, an audio chip
		"1.10", "1.2.3", "12.10.01.02", "Rev. B", "rev 1.00", "V1.2", "v2", "Ver1.0.3", "VERSION 2", "FW 2.04", "Revision: 3",
		"4321", "87654321", "9876543210",
		"0000:00:14.0", "0000:3b:00.0", "10000:00:14.0",
		"none", "None", "N/A", "NULL", "default", "Default string", "Unknown", "Serial", "Serial Number", "SerialNumber",
		"To be filled by O.E.M.", "To Be Filled By O.E.M", "Not Specified", "Not Applicable", "no serial", "TEST",
	} {
		if !PlaceholderSerial(s) {
			t.Errorf("%q is accepted as a serial number", s)
		}
	}
}

func TestRealSerials(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"A50285BI", "AL00FM1J", "FT4XQZ1B", "DN01IXGU", "A6008isP", // FTDI
		"1c4f3a8e7dbeeb118ad1d3f9a29c855c", "0133A5B8", "00CEE2F6", "0002", // Silicon Labs
		"5433017662", "5B1E099273", // WCH
		"55736303831351F04132", "75833353035351B0B1F0", // Arduino
		"066CFF575251717867013127", "004200333137511233333639", // ST-Link
		"000801012345", "000683012340", // J-Link
		"7C:DF:A1:E0:00:01", "34:85:18:AC:1F:00", // ESP32-S3, its MAC address
		"00000002", "00000011", "00000100", "1000", "10000000", // set by hand
		"2012051600300", "20240117004512", "058F63666485", // card readers
		"5A6F1B30", "82CB1A5F", "Z9A2B3C4", "4C530001230514117423", "001A4D5E92B4BD81E6F30C17",
		"ABC123", "A1B2C3", "ABCDEF12", "12345688ACF4", "1234567A", "TESTER1", "nonesuch", "1-0000:00:03.0-1",
		"201.34.11", "17.345", "9.2.7.4.6", "01.00.0A", "REV8A", "REV812", "V1234", "VER00123", "REVELATION", "VK3", "FW20B", "192.168.10.5",
		"SN8841A", "0x1A2B3C4D", "Ünïcode1", "序列号七",
	} {
		if PlaceholderSerial(s) {
			t.Errorf("%q is treated as a placeholder", s)
		}
	}
}
