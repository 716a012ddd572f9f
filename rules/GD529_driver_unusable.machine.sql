SELECT n::BIGINT || ' NVIDIA card(s) on the PCI bus, and the driver does not answer: ' || reason AS story
FROM (SELECT max(value) FILTER (WHERE name = 'pci_cards') AS n, max(text) FILTER (WHERE name = 'driver_error') AS reason FROM machine_fact)
WHERE n > 0 AND reason IS NOT NULL
