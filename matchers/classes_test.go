package matchers_test

// The classes of nodes, with the directories that the kernel gives them. Where
// no source is named, they are as Linux 6.1 shows them on QEMU's machines.
var pciClasses = []class{
	{
		// drivers/infiniband/core: uverbs_main.c, user_mad.c. One umad and issm
		// a port.
		name: "rdma",
		nodes: []derived{
			{"infiniband/uverbs{0}", "infiniband_verbs/uverbs{0}", "infiniband_verbs", "uverbs", false},
			{"infiniband/umad{0}", "infiniband_mad/umad{0}", "infiniband_mad", "umad", false},
			{"infiniband/issm{0}", "infiniband_mad/issm{0}", "infiniband_mad", "issm", false},
			{"infiniband/umad{1}", "infiniband_mad/umad{1}", "infiniband_mad", "umad.1", false},
			{"infiniband/issm{1}", "infiniband_mad/issm{1}", "infiniband_mad", "issm.1", false},
			{"ptp{0}", "ptp/ptp{0}", "ptp", "ptp", false},
		},
		virtual: []derived{{"infiniband/rdma_cm", "misc/rdma_cm", "misc", "infiniband:rdma_cm", false}},
	},
	{
		// The buses of connectors are below these, that of the memory is not
		// (drivers/gpu/drm/drm_sysfs.c, drivers/i2c/i2c-dev.c).
		name: "graphics",
		nodes: []derived{
			{"dri/card{0}", "drm/card{0}", "drm", "card", false},
			{"dri/renderD{0}", "drm/renderD{0}", "drm", "renderD", false},
			{"fb{0}", "graphics/fb{0}", "graphics", "fb", false},
			{"i2c-{0}", "i2c-{0}/i2c-dev/i2c-{0}", "i2c-dev", "i2c", false},
			{"i2c-{1}", "drm/card{0}/card{0}-HDMI-A-1/i2c-{1}/i2c-dev/i2c-{1}", "i2c-dev", "i2c.1", false},
			{"drm_dp_aux{0}", "drm/card{0}/card{0}-DP-1/drm_dp_aux{0}", "drm_dp_aux_dev", "drm_dp_aux", false},
		},
		virtual: []derived{{"kfd", "kfd/kfd", "kfd", "kfd", false}},
	},
	{
		// Jacks are input devices (sound/core/jack.c).
		name: "sound",
		nodes: []derived{
			{"snd/controlC{0}", "sound/card{0}/controlC{0}", "sound", "controlC", false},
			{"snd/pcmC{0}D0p", "sound/card{0}/pcmC{0}D0p", "sound", "pcmCD0p", false},
			{"snd/pcmC{0}D0c", "sound/card{0}/pcmC{0}D0c", "sound", "pcmCD0c", false},
			{"snd/pcmC{0}D10p", "sound/card{0}/pcmC{0}D10p", "sound", "pcmCD10p", false},
			{"snd/hwC{0}D0", "sound/card{0}/hwC{0}D0", "sound", "hwCD0", false},
			{"input/event{1}", "sound/card{0}/input{1}/event{1}", "input", "event", false},
			{"input/event{2}", "sound/card{0}/input{2}/event{2}", "input", "event.1", false},
		},
		virtual: []derived{{"snd/seq", "sound/seq", "sound", "snd:seq", false}, {"snd/timer", "sound/timer", "sound", "snd:timer", false}},
	},
	{
		// A digital signal processor has a platform device for its board.
		name: "sound by a platform device",
		nodes: []derived{
			{"snd/controlC{0}", "skl_hda_dsp_generic.{1}.auto/sound/card{0}/controlC{0}", "sound", "controlC", false},
			{"snd/pcmC{0}D0p", "skl_hda_dsp_generic.{1}.auto/sound/card{0}/pcmC{0}D0p", "sound", "pcmCD0p", false},
		},
	},
	{
		// The index counts over all nodes of one device (get_index in
		// drivers/media/v4l2-core/v4l2-dev.c); drivers/media/dvb-core/dvbdev.c.
		name: "television",
		nodes: []derived{
			{"video{0}", "video4linux/video{0}", "video4linux", "video", false},
			{"vbi{0}", "video4linux/vbi{0}", "video4linux", "vbi.1", false},
			{"dvb/adapter{0}/frontend0", "dvb/dvb{0}.frontend0", "dvb", "dvb.frontend0", false},
			{"dvb/adapter{0}/demux0", "dvb/dvb{0}.demux0", "dvb", "dvb.demux0", false},
			{"dvb/adapter{1}/frontend0", "dvb/dvb{1}.frontend0", "dvb", "dvb.frontend0.1", false},
		},
		attrs: map[string]string{"video4linux/video{0}/index": "0", "video4linux/vbi{0}/index": "1"},
	},
	{
		name: "serial ports",
		nodes: []derived{
			{"ttyS{0}", "tty/ttyS{0}", "tty", "ttyS", false},
			{"ttyS{1}", "tty/ttyS{1}", "tty", "ttyS.1", false},
			{"ttyS{2}", "tty/ttyS{2}", "tty", "ttyS.2", false},
		},
	},
	{
		// Since Linux 6.5 controller and port are devices of their own
		// (drivers/tty/serial/serial_base_bus.c).
		name: "serial ports of a later kernel",
		nodes: []derived{
			{"ttyS{0}", "0000:05:00.0:0/0000:05:00.0:0.0/tty/ttyS{0}", "tty", "ttyS", false},
			{"ttyS{1}", "0000:05:00.0:0/0000:05:00.0:0.1/tty/ttyS{1}", "tty", "ttyS.1", false},
		},
	},
	{
		// drivers/mtd/mtdcore.c, drivers/mtd/mtd_blkdevs.c.
		name: "flash",
		nodes: []derived{
			{"mtd{0}", "spi_master/spi{0}/spi{0}.0/mtd/mtd{0}", "mtd", "mtd", false},
			{"mtd{0}ro", "spi_master/spi{0}/spi{0}.0/mtd/mtd{0}ro", "mtd", "mtdro", false},
			{"mtdblock{0}", "spi_master/spi{0}/spi{0}.0/mtd/mtd{0}/mtdblock{0}", "block", "mtdblock", true},
		},
	},
	{
		name: "nvme",
		nodes: []derived{
			{"nvme{0}", "nvme/nvme{0}", "nvme", "nvme", false},
			{"ng{0}n1", "nvme/nvme{0}/ng{0}n1", "nvme-generic", "ngn1", false},
			{"nvme{0}n1", "nvme/nvme{0}/nvme{0}n1", "block", "nvmen1", true},
			{"nvme{0}n1p1", "nvme/nvme{0}/nvme{0}n1/nvme{0}n1p1", "block", "nvmen1p1", true},
			{"nvme{0}n1p2", "nvme/nvme{0}/nvme{0}n1/nvme{0}n1p2", "block", "nvmen1p2", true},
			{"nvme{0}n2", "nvme/nvme{0}/nvme{0}n2", "block", "nvmen2", true},
		},
	},
	{
		// With native multipath a namespace is below its subsystem: it belongs
		// to each of the controllers that lead there, as long as they do.
		name:  "nvme with several paths",
		nodes: []derived{{"nvme{0}", "nvme/nvme{0}", "nvme", "nvme", false}},
		virtual: []derived{
			{"ng{1}n1", "nvme-subsystem/nvme-subsys{1}/ng{1}n1", "nvme-generic", "ng{1}n1", false},
			{"nvme{1}n1", "nvme-subsystem/nvme-subsys{1}/nvme{1}n1", "block", "nvme{1}n1", true},
			{"nvme{1}n1p1", "nvme-subsystem/nvme-subsys{1}/nvme{1}n1/nvme{1}n1p1", "block", "nvme{1}n1p1", true},
		},
	},
	{
		// Disks in ports 2 and 4, a drive in port 6. Letters and numbers of sg
		// follow the order in which they answer.
		name: "ata",
		nodes: []derived{
			{"sd{a}", "ata{0}/host{0}/target{0}:0:0/{0}:0:0:0/block/sd{a}", "block", "sd.1", true},
			{"sd{a}1", "ata{0}/host{0}/target{0}:0:0/{0}:0:0:0/block/sd{a}/sd{a}1", "block", "sd1.1", true},
			{"sg{1}", "ata{0}/host{0}/target{0}:0:0/{0}:0:0:0/scsi_generic/sg{1}", "scsi_generic", "sg.1", false},
			{"bsg/{0}:0:0:0", "ata{0}/host{0}/target{0}:0:0/{0}:0:0:0/bsg/{0}:0:0:0", "bsg", "bsg-0-0-0.1", false},
			{"sd{b}", "ata{1}/host{1}/target{1}:0:0/{1}:0:0:0/block/sd{b}", "block", "sd.3", true},
			{"sd{b}1", "ata{1}/host{1}/target{1}:0:0/{1}:0:0:0/block/sd{b}/sd{b}1", "block", "sd1.3", true},
			{"sg{0}", "ata{1}/host{1}/target{1}:0:0/{1}:0:0:0/scsi_generic/sg{0}", "scsi_generic", "sg.3", false},
			{"bsg/{1}:0:0:0", "ata{1}/host{1}/target{1}:0:0/{1}:0:0:0/bsg/{1}:0:0:0", "bsg", "bsg-0-0-0.3", false},
			{"sr{0}", "ata{2}/host{2}/target{2}:0:0/{2}:0:0:0/block/sr{0}", "block", "sr.5", true},
			{"sg{2}", "ata{2}/host{2}/target{2}:0:0/{2}:0:0:0/scsi_generic/sg{2}", "scsi_generic", "sg.5", false},
		},
		attrs: map[string]string{
			"ata{0}/ata_port/ata{0}/port_no": "2", "ata{1}/ata_port/ata{1}/port_no": "4", "ata{2}/ata_port/ata{2}/port_no": "6",
		},
	},
	{
		// drivers/scsi: scsi_transport_sas.c, scsi_bsg.c, st.c, ch.c.
		name: "sas",
		nodes: []derived{
			{"sd{a}", "host{0}/port-{0}:0/end_device-{0}:0/target{0}:0:0/{0}:0:0:0/block/sd{a}", "block", "sd", true},
			{"sd{b}", "host{0}/port-{0}:1/expander-{0}:0/port-{0}:0:1/end_device-{0}:0:1/target{0}:0:1/{0}:0:1:0/block/sd{b}", "block", "sd.1000", true},
			{"sd{b}12", "host{0}/port-{0}:1/expander-{0}:0/port-{0}:0:1/end_device-{0}:0:1/target{0}:0:1/{0}:0:1:0/block/sd{b}/sd{b}12", "block", "sd12.1000", true},
			{"bsg/{0}:0:1:0", "host{0}/port-{0}:1/expander-{0}:0/port-{0}:0:1/end_device-{0}:0:1/target{0}:0:1/{0}:0:1:0/bsg/{0}:0:1:0", "bsg", "bsg-0-1-0.1000", false},
			{"nst{0}", "host{0}/port-{0}:2/end_device-{0}:2/target{0}:0:2/{0}:0:2:0/scsi_tape/nst{0}", "scsi_tape", "nst.2000", false},
			{"st{0}a", "host{0}/port-{0}:2/end_device-{0}:2/target{0}:0:2/{0}:0:2:0/scsi_tape/st{0}a", "scsi_tape", "sta.2000", false},
			{"sch{0}", "host{0}/port-{0}:2/end_device-{0}:2/target{0}:0:2/{0}:0:2:1/scsi_changer/sch{0}", "scsi_changer", "sch.2001", false},
			{"bsg/sas_host{0}", "host{0}/bsg/sas_host{0}", "bsg", "bsg-sas_host", false},
			{"bsg/end_device-{0}:0", "host{0}/port-{0}:0/end_device-{0}:0/bsg/end_device-{0}:0", "bsg", "bsg-end_device-0", false},
		},
	},
	{
		name: "watchdog",
		nodes: []derived{
			{"watchdog{0}", "iTCO_wdt.{1}.auto/watchdog/watchdog{0}", "watchdog", "watchdog", false},
		},
		virtual: []derived{{"watchdog{2}", "watchdog/watchdog{2}", "watchdog", "watchdog{2}", false}, {"hwrng", "misc/hw_random", "misc", "hwrng", false}},
	},
	{
		// drivers/char/virtio_console.c: the device's number, and that of the
		// port in it.
		name: "virtio",
		nodes: []derived{
			{"vport{0}p1", "virtio{1}/virtio-ports/vport{0}p1", "virtio-ports", "vportp1", false},
			{"vport{0}p2", "virtio{1}/virtio-ports/vport{0}p2", "virtio-ports", "vportp2", false},
			{"vd{a}", "virtio{1}/block/vd{a}", "block", "vd", true},
			{"vd{a}1", "virtio{1}/block/vd{a}/vd{a}1", "block", "vd1", true},
		},
	},
	{
		// drivers/dma/idxd/cdev.c; "/" in a name is "!" in sysfs.
		name: "accelerator queues",
		nodes: []derived{
			{"dsa/wq{0}.0", "dsa{0}/wq{0}.0/dsa!wq{0}.0", "dsa", "dsa_wq.0-xk3f343dapm", false},
			{"dsa/wq{0}.1", "dsa{0}/wq{0}.1/dsa!wq{0}.1", "dsa", "dsa_wq.1-xf4lgl4im3m", false},
		},
	},
	{
		name: "drivers in programs",
		nodes: []derived{
			{"uio{0}", "uio/uio{0}", "uio", "uio", false},
			{"mei{0}", "mei/mei{0}", "mei", "mei", false},
			{"accel/accel{0}", "accel/accel{0}", "accel", "accel", false},
		},
	},
}

var usbClasses = []class{
	{
		// An adapter knows the number of each port; a modem has none.
		name: "serial ports",
		nodes: []derived{
			{"ttyACM{0}", "if:1.0/tty/ttyACM{0}", "tty", "if00:ttyACM", false},
			{"ttyUSB{0}", "if:1.1/ttyUSB{0}/tty/ttyUSB{0}", "tty", "if01:ttyUSB.2", false},
			{"ttyUSB{1}", "if:1.1/ttyUSB{1}/tty/ttyUSB{1}", "tty", "if01:ttyUSB.3", false},
			{"cdc-wdm{0}", "if:1.4/usbmisc/cdc-wdm{0}", "usbmisc", "if04:cdc-wdm", false},
			{"wwan{0}qmi0", "if:1.4/wwan/wwan{0}/wwan{0}qmi0", "wwan", "if04:wwanqmi0", false},
		},
		attrs: map[string]string{"if:1.1/ttyUSB{0}/port_number": "2", "if:1.1/ttyUSB{1}/port_number": "3"},
	},
	{
		name: "camera",
		nodes: []derived{
			{"video{0}", "if:1.0/video4linux/video{0}", "video4linux", "if00:video", false},
			{"video{1}", "if:1.0/video4linux/video{1}", "video4linux", "if00:video.1", false},
			{"media{0}", "if:1.0/media{0}", "media", "if00:media", false},
			{"input/event{0}", "if:1.0/input/input{1}/event{0}", "input", "if00:event", false},
			{"snd/controlC{0}", "if:1.2/sound/card{0}/controlC{0}", "sound", "if02:controlC", false},
			{"snd/pcmC{0}D0c", "if:1.2/sound/card{0}/pcmC{0}D0c", "sound", "if02:pcmCD0c", false},
			{"snd/midiC{0}D0", "if:1.2/sound/card{0}/midiC{0}D0", "sound", "if02:midiCD0", false},
		},
		attrs:   map[string]string{"if:1.0/video4linux/video{0}/index": "0", "if:1.0/video4linux/video{1}/index": "1"},
		virtual: []derived{{"snd/seq", "sound/seq", "sound", "snd:seq", false}},
	},
	{
		// drivers/hid, drivers/input: one interface may have several of each.
		name: "input",
		nodes: []derived{
			{"input/event{0}", "if:1.0/0003:046D:C31C.0001/input/input{0}/event{0}", "input", "if00:event", false},
			{"input/event{1}", "if:1.1/0003:046D:C31C.0002/input/input{1}/event{1}", "input", "if01:event", false},
			{"input/event{2}", "if:1.1/0003:046D:C31C.0002/input/input{2}/event{2}", "input", "if01:event.1", false},
			{"input/mouse{0}", "if:1.1/0003:046D:C31C.0002/input/input{1}/mouse{0}", "input", "if01:mouse", false},
			{"input/js{0}", "if:1.1/0003:046D:C31C.0002/input/input{2}/js{0}", "input", "if01:js", false},
			{"hidraw{0}", "if:1.0/0003:046D:C31C.0001/hidraw/hidraw{0}", "hidraw", "if00:hidraw", false},
			{"hidraw{1}", "if:1.1/0003:046D:C31C.0002/hidraw/hidraw{1}", "hidraw", "if01:hidraw", false},
			{"usb/hiddev{0}", "if:1.1/usbmisc/hiddev{0}", "usbmisc", "if01:hiddev", false},
		},
		virtual: []derived{{"input/mice", "input/mice", "input", "input:mice", false}, {"uinput", "misc/uinput", "misc", "uinput", false}},
	},
	{
		// drivers/hid/hid-sensor-hub.c, drivers/iio/industrialio-core.c.
		name: "sensors",
		nodes: []derived{
			{"iio:device{0}", "if:1.0/0003:8086:22D8.0001/HID-SENSOR-200073.{0}.auto/iio:device{0}", "iio", "if00:iio_device-xainu69qaca", false},
			{"iio:device{1}", "if:1.0/0003:8086:22D8.0001/HID-SENSOR-200076.{1}.auto/iio:device{1}", "iio", "if00:iio_device-xainu69qaca.1", false},
		},
	},
	{
		name: "card reader",
		nodes: []derived{
			{"sd{a}", "if:1.0/host{0}/target{0}:0:0/{0}:0:0:0/block/sd{a}", "block", "if00:sd", true},
			{"sd{a}1", "if:1.0/host{0}/target{0}:0:0/{0}:0:0:0/block/sd{a}/sd{a}1", "block", "if00:sd1", true},
			{"sg{1}", "if:1.0/host{0}/target{0}:0:0/{0}:0:0:0/scsi_generic/sg{1}", "scsi_generic", "if00:sg", false},
			{"bsg/{0}:0:0:0", "if:1.0/host{0}/target{0}:0:0/{0}:0:0:0/bsg/{0}:0:0:0", "bsg", "if00:bsg-0-0-0", false},
			{"sd{b}", "if:1.0/host{0}/target{0}:0:0/{0}:0:0:1/block/sd{b}", "block", "if00:sd.1", true},
			{"sg{0}", "if:1.0/host{0}/target{0}:0:0/{0}:0:0:1/scsi_generic/sg{0}", "scsi_generic", "if00:sg.1", false},
			{"bsg/{0}:0:0:1", "if:1.0/host{0}/target{0}:0:0/{0}:0:0:1/bsg/{0}:0:0:1", "bsg", "if00:bsg-0-0-1", false},
		},
	},
	{
		name:  "printer",
		nodes: []derived{{"usb/lp{0}", "if:1.1/usbmisc/lp{0}", "usbmisc", "if01:lp", false}},
	},
	{
		// Below the device itself, not below an interface.
		name: "television",
		nodes: []derived{
			{"dvb/adapter{0}/frontend0", "dvb/dvb{0}.frontend0", "dvb", "dvb.frontend0", false},
			{"dvb/adapter{0}/dvr0", "dvb/dvb{0}.dvr0", "dvb", "dvb.dvr0", false},
			{"lirc{0}", "if:1.1/rc/rc{0}/lirc{0}", "lirc", "if01:lirc", false},
		},
	},
	{
		// Adapters, with what is soldered behind them.
		name: "buses",
		nodes: []derived{
			{"gpiochip{0}", "if:1.0/gpiochip{0}", "gpio", "if00:gpiochip", false},
			{"i2c-{0}", "if:1.0/i2c-{0}/i2c-dev/i2c-{0}", "i2c-dev", "if00:i2c", false},
			{"rtc{0}", "if:1.0/i2c-{0}/{0}-0068/rtc/rtc{0}", "rtc", "if00:rtc", false},
			{"spidev{0}.0", "if:1.0/spi_master/spi{0}/spi{0}.0/spidev/spidev{0}.0", "spidev", "if00:spidev.0.0", false},
			{"spidev{0}.1", "if:1.0/spi_master/spi{0}/spi{0}.1/spidev/spidev{0}.1", "spidev", "if00:spidev.1.0", false},
			{"mtd{0}", "if:1.0/spi_master/spi{0}/spi{0}.2/mtd/mtd{0}", "mtd", "if00:mtd", false},
			{"tpm{0}", "if:1.0/spi_master/spi{0}/spi{0}.3/tpm/tpm{0}", "tpm", "if00:tpm", false},
			{"tpmrm{0}", "if:1.0/spi_master/spi{0}/spi{0}.3/tpmrm/tpmrm{0}", "tpmrm", "if00:tpmrm", false},
		},
	},
}

var platformClasses = []class{
	{
		// Numbers of the firmware's tables.
		name: "buses",
		nodes: []derived{
			{"spidev0.1", "spi_master/spi0/spi0.1/spidev/spidev0.1", "spidev", "spidev0.1", false},
			{"ttyAMA0", "tty/ttyAMA0", "tty", "ttyAMA0", false},
			{"ttyAMA1", "fe201000.thing:0/fe201000.thing:0.0/tty/ttyAMA1", "tty", "ttyAMA1", false},
			{"mtd0", "mtd/mtd0", "mtd", "mtd0", false},
			{"mtd0ro", "mtd/mtd0ro", "mtd", "mtd0ro", false},
			{"mmcblk0", "mmc_host/mmc0/mmc0:0001/block/mmcblk0", "block", "mmcblk0", true},
			{"tpm0", "tpm/tpm0", "tpm", "tpm0", false},
			{"tpmrm0", "tpmrm/tpmrm0", "tpmrm", "tpmrm0", false},
			{"rtc0", "rtc/rtc0", "rtc", "rtc0", false},
			{"watchdog", "misc/watchdog", "misc", "watchdog", false},
			{"watchdog0", "watchdog/watchdog0", "watchdog", "watchdog0", false},
		},
	},
	{
		// Numbers in the order of probing.
		name: "media",
		nodes: []derived{
			{"dri/card{0}", "drm/card{0}", "drm", "card", false},
			{"dri/renderD{0}", "drm/renderD{0}", "drm", "renderD", false},
			{"video{0}", "video4linux/video{0}", "video4linux", "video", false},
			{"video{1}", "video4linux/video{1}", "video4linux", "video.1", false},
			{"media{0}", "media{0}", "media", "media", false},
			{"snd/controlC{0}", "sound/card{0}/controlC{0}", "sound", "controlC", false},
			{"input/event{0}", "input/input{1}/event{0}", "input", "event", false},
			{"iio:device{0}", "i2c-1/1-0076/iio:device{0}", "iio", "iio_device-xainu69qaca", false},
			{"gpiochip{0}", "gpiochip{0}", "gpio", "gpiochip", false},
			{"i2c-{0}", "i2c-{0}/i2c-dev/i2c-{0}", "i2c-dev", "i2c", false},
			{"cec{0}", "cec{0}", "cec", "cec", false},
		},
		attrs: map[string]string{"video4linux/video{0}/index": "0", "video4linux/video{1}/index": "1"},
	},
	{
		name: "devices that a driver made",
		nodes: []derived{
			{"cros_ec", "cros-ec-dev.{0}.auto/misc/cros_ec", "misc", "cros_ec", false},
			{"sd{a}", "host{0}/target{0}:0:0/{0}:0:0:0/block/sd{a}", "block", "sd", true},
			{"sd{b}", "host{0}/target{0}:0:0/{0}:0:0:1/block/sd{b}", "block", "sd.1", true},
		},
	},
}
